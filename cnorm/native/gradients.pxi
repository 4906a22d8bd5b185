# What the backward functions have in common.

from cnorm._gradients import Gradients

# The memory of the arrays of one call; NULL for what is not there or not wanted.
cdef struct gradient_data:
    void *dx
    void *dweight
    void *dbias
    void *dy
    void *x
    void *mean
    void *rstd
    void *weight


cdef inline gradient_data gradient_data_of(cnp.ndarray dy, cnp.ndarray x, mean, cnp.ndarray rstd, weight, dx, dweight,
                                           dbias) noexcept:
    """Of arrays in the backend protocol's form."""
    return gradient_data(data_of(dx), data_of(dweight), data_of(dbias), cnp.PyArray_DATA(dy), cnp.PyArray_DATA(x),
                         data_of(mean), cnp.PyArray_DATA(rstd), data_of(weight))


# Which gradients a call wants.
cdef struct wanted_gradients:
    bint x
    bint weight
    bint bias


cdef bint take_need(object need, object weight, object out, wanted_gradients *wanted) noexcept:
    """A tuple of names, or None for x, and weight and bias where there is a weight. `out` is for x."""
    wanted.x = need is None
    wanted.weight = wanted.bias = need is None and weight is not None
    if need is None:
        return True
    if type(need) is not tuple:
        return False
    for name in <tuple>need:
        if type(name) is not str:
            return False
        if name == "x":
            wanted.x = True
        elif name == "weight":
            wanted.weight = True
        elif name == "bias":
            wanted.bias = True
        else:
            return False
    return wanted.x or out is None


cdef bint take_statistic(object a, cnp.ndarray x, int ndim, const cnp.npy_intp *shape, void **data) noexcept:
    """The memory of a plain array of this shape and the type of x."""
    cdef int i
    if not is_plain(a, cnp.PyArray_TYPE(x)) or cnp.PyArray_NDIM(<cnp.ndarray>a) != ndim:
        return False
    for i in range(ndim):
        if cnp.PyArray_DIM(<cnp.ndarray>a, i) != shape[i]:
            return False
    data[0] = cnp.PyArray_DATA(<cnp.ndarray>a)
    return True


cdef bint take_dy(object dy, cnp.ndarray x, gradient_data *g) noexcept:
    """A plain array like x."""
    if not is_plain(dy, cnp.PyArray_TYPE(x)) or not cnp.PyArray_SAMESHAPE(<cnp.ndarray>dy, x):
        return False
    g.dy = cnp.PyArray_DATA(<cnp.ndarray>dy)
    g.x = cnp.PyArray_DATA(x)
    return True


cdef cnp.ndarray new_parameter(bint wanted, cnp.ndarray x, int ndim, cnp.npy_intp *shape):
    return new_array(ndim, shape, cnp.PyArray_TYPE(x)) if wanted else None


# The backward call of a norm over channels: its shape, data and results.
cdef struct channel_gradient_call:
    channel_shape shape
    wanted_gradients wanted
    gradient_data data


cdef bint take_channel_gradient(object dy, object x, object mean, object rstd, object weight, object axis, object need,
                                object out, int statistics_ndim, cnp.npy_intp groups,
                                channel_gradient_call *c) noexcept:
    """`groups` for each sample (0: as many as channels), or statistics of the channels alone."""
    cdef int type_number = plain_type(x)
    cdef cnp.npy_intp[2] sizes
    if (type_number < 0 or not take_channels(<cnp.ndarray>x, axis, &c.shape)
            or c.shape.batch * c.shape.channels * c.shape.spatial == 0 or not take_dy(dy, <cnp.ndarray>x, &c.data)
            or not take_need(need, weight, out, &c.wanted)
            or not take_vector(weight, type_number, c.shape.channels, &c.data.weight)):
        return False
    sizes[0] = c.shape.batch if statistics_ndim == 2 else c.shape.channels
    sizes[1] = groups if groups else c.shape.channels
    return (take_statistic(mean, <cnp.ndarray>x, statistics_ndim, sizes, &c.data.mean)
            and take_statistic(rstd, <cnp.ndarray>x, statistics_ndim, sizes, &c.data.rstd))
