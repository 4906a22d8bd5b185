# Telling plain arguments from all others, and small things every op needs.

cdef enum:
    SMALL_WORKSPACE = 512  # doubles


cdef inline bint is_plain(object a, int type_number) noexcept:
    """An ndarray, not a subclass, of this dtype, C-contiguous, aligned and in native byte order."""
    return (cnp.PyArray_CheckExact(a) and cnp.PyArray_TYPE(<cnp.ndarray>a) == type_number
            and cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>a))


cdef inline int plain_type(object x) noexcept:
    """NPY_FLOAT or NPY_DOUBLE if `x` is a plain array of that type, else -1."""
    if is_plain(x, cnp.NPY_FLOAT):
        return cnp.NPY_FLOAT
    return cnp.NPY_DOUBLE if is_plain(x, cnp.NPY_DOUBLE) else -1


cdef inline bint take_vector(object a, int type_number, cnp.npy_intp n, void **data) noexcept:
    """The memory of an optional parameter: NULL for None, that of a plain vector of n elements; False if neither."""
    data[0] = NULL
    if a is None:
        return True
    if not is_plain(a, type_number) or cnp.PyArray_NDIM(<cnp.ndarray>a) != 1:
        return False
    data[0] = cnp.PyArray_DATA(<cnp.ndarray>a)
    return cnp.PyArray_DIM(<cnp.ndarray>a, 0) == n


cdef inline bint take_running(object a, int type_number, cnp.npy_intp n, void **data) noexcept:
    """As take_vector, for one that is written."""
    return take_vector(a, type_number, n, data) and (a is None or cnp.PyArray_ISWRITEABLE(<cnp.ndarray>a))


cdef inline bint take_number(object a, double *value) noexcept:
    if type(a) is not float:
        return False
    value[0] = <double>a
    return isfinite(value[0])


cdef inline cnp.ndarray take_output(object out, cnp.ndarray x):
    """`out` if it is plain and like x, a new array for None, else None."""
    if out is None:
        return new_array(cnp.PyArray_NDIM(x), cnp.PyArray_DIMS(x), cnp.PyArray_TYPE(x))
    if (is_plain(out, cnp.PyArray_TYPE(x)) and cnp.PyArray_ISWRITEABLE(<cnp.ndarray>out)
            and cnp.PyArray_SAMESHAPE(<cnp.ndarray>out, x)):
        return <cnp.ndarray>out
    return None


cdef inline cnp.ndarray new_statistics(cnp.ndarray x, int lead):
    """For rows that begin after `lead` axes: the shape of x, with 1 for the axes of a row."""
    cdef cnp.npy_intp sizes[64]
    cdef int i
    for i in range(cnp.PyArray_NDIM(x)):
        sizes[i] = cnp.PyArray_DIM(x, i) if i < lead else 1
    return cnp.PyArray_EMPTY(cnp.PyArray_NDIM(x), sizes, cnp.PyArray_TYPE(x), 0)


cdef inline void *data_of(object a) noexcept:
    return NULL if a is None else cnp.PyArray_DATA(<cnp.ndarray>a)


cdef inline bint is_double(cnp.ndarray x) noexcept:
    return cnp.PyArray_TYPE(x) == cnp.NPY_DOUBLE


cdef int raise_status(cnorm_status status) except -1:
    """What a backend function does with a status: the arguments were checked, so it can only be memory."""
    if status != CNORM_OK:
        raise MemoryError(cnorm_status_string(status).decode())
    return 0


# Memory for a call: the caller's array where it is enough.
cdef inline void *take_workspace(void *small, size_t size) noexcept nogil:
    return small if size <= SMALL_WORKSPACE * sizeof(double) else malloc(size)


cdef inline void drop_workspace(void *small, void *workspace) noexcept nogil:
    if workspace != small:
        free(workspace)


# (batch, channels, spatial) of an array whose channel axis is `axis`: channels-first for axis 1, or last.
cdef struct channel_shape:
    size_t batch
    size_t channels
    size_t spatial
    cnorm_layout layout


cdef inline bint take_channels(cnp.ndarray x, object axis, channel_shape *s) noexcept:
    cdef int ndim = cnp.PyArray_NDIM(x), at, i
    if type(axis) is not int or ndim < 2:
        return False
    if axis == 1:
        at = 1
    elif axis == -1 or axis == ndim - 1:
        at = ndim - 1
    else:
        return False
    s.batch = cnp.PyArray_DIM(x, 0)
    s.channels = cnp.PyArray_DIM(x, at)
    s.spatial = 1
    for i in range(1, ndim):
        if i != at:
            s.spatial *= <size_t>cnp.PyArray_DIM(x, i)
    # Where it makes no difference, as _layouts.channel_form chooses.
    s.layout = CNORM_CHANNELS_LAST if at != 1 and s.channels > 1 and s.spatial > 1 else CNORM_CHANNELS_FIRST
    return True


# A plain array with a channel axis, and its parameters.
cdef struct channel_call:
    channel_shape shape
    void *weight
    void *bias


cdef bint take_channel_call(object x, object axis, object weight, object bias, channel_call *c) noexcept:
    cdef int type_number = plain_type(x)
    return (type_number >= 0 and take_channels(<cnp.ndarray>x, axis, &c.shape)
            and c.shape.batch * c.shape.channels * c.shape.spatial > 0
            and take_vector(weight, type_number, c.shape.channels, &c.weight)
            and take_vector(bias, type_number, c.shape.channels, &c.bias))


cdef bint take_running_pair(object mean, object var, cnp.ndarray x, size_t channels, void **mean_data,
                            void **var_data) noexcept:
    return ((mean is None) == (var is None) and (mean is None or mean is not var)
            and take_running(mean, cnp.PyArray_TYPE(x), channels, mean_data)
            and take_running(var, cnp.PyArray_TYPE(x), channels, var_data))


cdef inline cnp.ndarray new_pair(cnp.npy_intp a, cnp.npy_intp b, cnp.ndarray x):
    """Statistics of shape (a, b)."""
    cdef cnp.npy_intp[2] sizes = [a, b]
    return cnp.PyArray_EMPTY(2, sizes, cnp.PyArray_TYPE(x), 0)


cdef inline channel_shape shape_of(cnp.ndarray x, bint channels_last) noexcept:
    """Of a 3-D array in the backend protocol's form."""
    cdef channel_shape s
    s.batch = cnp.PyArray_DIM(x, 0)
    s.channels = cnp.PyArray_DIM(x, 2 if channels_last else 1)
    s.spatial = cnp.PyArray_DIM(x, 1 if channels_last else 2)
    s.layout = CNORM_CHANNELS_LAST if channels_last else CNORM_CHANNELS_FIRST
    return s


cdef inline channel_shape view_shape(const Py_ssize_t *shape, bint channels_last) noexcept nogil:
    """Of a 3-D view."""
    return channel_shape(shape[0], shape[2 if channels_last else 1], shape[1 if channels_last else 2],
                         CNORM_CHANNELS_LAST if channels_last else CNORM_CHANNELS_FIRST)


# Typed memoryviews: an optional one may be None.
cdef inline bint is_length(const floating[::1] a, Py_ssize_t n) noexcept nogil:
    return a is None or a.shape[0] == n


cdef inline void *view_data(const floating[::1] a) noexcept nogil:
    return NULL if a is None else <void *>&a[0]


cdef inline bint same_shape(const Py_ssize_t *a, const Py_ssize_t *b, int ndim) noexcept nogil:
    cdef int i
    for i in range(ndim):
        if a[i] != b[i]:
            return False
    return True
