# Output arrays. Large ones are made on recycled memory: when an output is garbage, its pages are kept for the next one,
# up to a limit, since the page faults of fresh memory cost more than a norm does.

cdef extern from "pages.h" nogil:
    size_t pages_size(size_t size)
    void *pages_allocate(size_t size)
    void pages_free(void *pages, size_t size)

cdef enum:
    KEPT_MOST = 16

cdef size_t RECYCLE_BYTES = 1 << 18  # smaller arrays are NumPy's own
cdef PyThread_type_lock kept_lock = NULL
cdef size_t kept_limit = 0
cdef size_t kept_bytes = 0
cdef int kept_count = 0
cdef void *kept_pages[KEPT_MOST]  # oldest first
cdef size_t kept_sizes[KEPT_MOST]


def _new_lock():
    """Make the lock; in a forked child another one, since a thread that is no more may have held the old."""
    global kept_lock
    kept_lock = PyThread_allocate_lock()
    if kept_lock == NULL:
        raise MemoryError("no memory for a lock")


_new_lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


cdef void *forget(int i) noexcept nogil:
    """Take entry i out of the kept pages; the lock is held."""
    global kept_count, kept_bytes
    cdef void *pages = kept_pages[i]
    cdef int j
    kept_bytes -= kept_sizes[i]
    kept_count -= 1
    for j in range(i, kept_count):
        kept_pages[j] = kept_pages[j + 1]
        kept_sizes[j] = kept_sizes[j + 1]
    return pages


cdef void trim(size_t limit) noexcept nogil:
    """Free the oldest kept pages until they are at most `limit` bytes and leave a free entry; the lock is held."""
    cdef size_t size
    while kept_count > 0 and (kept_bytes > limit or kept_count == KEPT_MOST):
        size = kept_sizes[0]
        pages_free(forget(0), size)


cdef class Pages:
    """The memory of one output array: its base object."""

    cdef void *pages
    cdef size_t size

    def __dealloc__(self):
        global kept_count, kept_bytes
        if self.pages == NULL:
            return
        PyThread_acquire_lock(kept_lock, 1)
        if self.size <= kept_limit:
            trim(kept_limit - self.size)
            kept_pages[kept_count] = self.pages
            kept_sizes[kept_count] = self.size
            kept_count += 1
            kept_bytes += self.size
        else:
            pages_free(self.pages, self.size)
        PyThread_release_lock(kept_lock)


cdef Pages take_pages(size_t size):
    """Kept pages of this size, or up to a quarter more, or else fresh ones."""
    cdef Pages owner = Pages.__new__(Pages)
    cdef int i
    size = pages_size(size)
    PyThread_acquire_lock(kept_lock, 1)
    for i in range(kept_count - 1, -1, -1):
        if size <= kept_sizes[i] <= size + size // 4:
            owner.size = kept_sizes[i]
            owner.pages = forget(i)
            break
    PyThread_release_lock(kept_lock)
    if owner.pages == NULL:
        owner.pages = pages_allocate(size)
        owner.size = size
        if owner.pages == NULL:
            raise MemoryError(f"no memory for an output of {size} bytes")
    return owner


cdef cnp.ndarray new_array(int ndim, cnp.npy_intp *shape, int type_number):
    """An uninitialised C-contiguous array of float32 or float64."""
    cdef size_t size = 4 if type_number == cnp.NPY_FLOAT else 8
    cdef int i
    for i in range(ndim):
        size *= <size_t>shape[i]
    if size < RECYCLE_BYTES or kept_limit == 0:
        return cnp.PyArray_EMPTY(ndim, shape, type_number, 0)
    cdef Pages owner = take_pages(size)
    cdef cnp.ndarray array = cnp.PyArray_SimpleNewFromData(ndim, shape, type_number, owner.pages)
    cnp.set_array_base(array, owner)
    return array


def empty(tuple shape, dtype):
    """Return an uninitialised C-contiguous array, on recycled memory where it is large."""
    cdef cnp.dtype kind = cnp.dtype(dtype)
    cdef cnp.npy_intp sizes[64]
    if not (kind.isnative and kind.type_num in (cnp.NPY_FLOAT, cnp.NPY_DOUBLE)):
        return np.empty(shape, kind)
    for i, n in enumerate(shape):
        sizes[i] = n
    return new_array(<int>len(shape), sizes, kind.type_num)


def cache_bytes():
    """Return how many bytes of output memory are kept now."""
    return kept_bytes


def cache_limit():
    """Return the most bytes of output memory that are kept for reuse."""
    return kept_limit


def set_cache_limit(size_t limit):
    """Keep at most `limit` bytes of output memory for reuse, and free now what is more; 0 switches this off."""
    global kept_limit
    PyThread_acquire_lock(kept_lock, 1)
    kept_limit = limit
    trim(limit)
    PyThread_release_lock(kept_lock)
