# ISA levels, threads and the build.


def isa():
    """Return the name of the ISA level in use."""
    return cnorm_isa().decode()


def isa_levels():
    """Return the names of the ISA levels that this machine can run, best first."""
    names = []
    while cnorm_isa_level(<int>len(names)) != NULL:
        names.append(cnorm_isa_level(<int>len(names)).decode())
    return tuple(names)


def set_isa(str name):
    """Use the ISA level of this name; ValueError if there is none."""
    if cnorm_set_isa(name.encode()) != CNORM_OK:
        raise ValueError(f"isa must be one of {', '.join(isa_levels())}, not {name!r}")


def get_num_threads():
    """Return the number of threads that a large call uses."""
    return cnorm_get_num_threads()


def set_num_threads(int threads):
    """Use at most this many threads."""
    if cnorm_set_num_threads(threads) != CNORM_OK:
        raise ValueError(f"threads must be at least 1, not {threads}")


def openmp():
    """Return whether the kernels were built with OpenMP."""
    return bool(cnorm_has_openmp())


def compiler():
    """Return the name and version of the compiler that built the kernels."""
    return cnorm_compiler().decode()


def copy(const float[::1] source, float[::1] target, bint stream):
    """Copy with the threads and stores of the norms: the yardstick for their speed."""
    if source.shape[0] != target.shape[0]:
        raise ValueError(f"target must have {source.shape[0]} elements, not {target.shape[0]}")
    cdef cnorm_status status = CNORM_OK
    if source.shape[0]:
        with nogil:
            status = cnorm_copy_f32(&target[0], &source[0], source.shape[0], stream)
    if status != CNORM_OK:
        raise ValueError(cnorm_status_string(status).decode())
