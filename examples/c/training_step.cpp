// Batch norm in C++: a forward pass of training and its backward pass, with exceptions for statuses and vectors for memory.
//
//     cc -O3 -c cnorm.c && c++ -std=c++11 training_step.cpp cnorm.o -lm -o training_step
#include "cnorm.h"

#include <cmath>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <vector>

namespace {

void check(cnorm_status status)
{
    if (status != CNORM_OK)
        throw std::runtime_error(cnorm_status_string(status));
}

// At least `bytes` bytes, aligned as a workspace must be.
std::vector<double> make_workspace(std::size_t bytes) { return std::vector<double>(bytes / sizeof(double) + 1); }

struct BatchNorm {
    explicit BatchNorm(std::size_t n)
        : channels(n), weight(n, 1.0f), bias(n, 0.0f), mean(n), rstd(n), running_mean(n, 0.0f), running_var(n, 1.0f)
    {
    }

    std::vector<float> forward(const std::vector<float> &x, std::size_t batch, std::size_t spatial)
    {
        const std::size_t size =
            cnorm_batch_norm_forward_workspace_f32(batch, channels, spatial, CNORM_CHANNELS_FIRST);
        std::vector<double> workspace = make_workspace(size);
        std::vector<float> y(x.size());
        check(cnorm_batch_norm_forward_f32(y.data(), mean.data(), rstd.data(), running_mean.data(),
                                           running_var.data(), x.data(), weight.data(), bias.data(), batch, channels,
                                           spatial, 1e-5, 0.1, 1, CNORM_CHANNELS_FIRST, workspace.data(), size));
        return y;
    }

    // The gradient of x; those of weight and bias go to dweight and dbias.
    std::vector<float> backward(const std::vector<float> &dy, const std::vector<float> &x, std::size_t batch,
                                std::size_t spatial, std::vector<float> &dweight, std::vector<float> &dbias) const
    {
        const std::size_t size =
            cnorm_batch_norm_backward_workspace_f32(batch, channels, spatial, CNORM_CHANNELS_FIRST);
        std::vector<double> workspace = make_workspace(size);
        std::vector<float> dx(x.size());
        check(cnorm_batch_norm_backward_f32(dx.data(), dweight.data(), dbias.data(), dy.data(), x.data(), mean.data(),
                                            rstd.data(), weight.data(), batch, channels, spatial, 1,
                                            CNORM_CHANNELS_FIRST, workspace.data(), size));
        return dx;
    }

    std::size_t channels;
    std::vector<float> weight, bias, mean, rstd, running_mean, running_var;
};

} // namespace

int main()
try {
    const std::size_t batch = 8, channels = 3, spatial = 25;
    std::vector<float> x(batch * channels * spatial), dy(x.size()), dweight(channels), dbias(channels);
    for (std::size_t i = 0; i < x.size(); i++) {
        x[i] = static_cast<float>(5 + std::sin(0.7 * i));
        dy[i] = static_cast<float>(std::cos(0.3 * i));
    }
    BatchNorm norm(channels);
    norm.forward(x, batch, spatial);
    const std::vector<float> dx = norm.backward(dy, x, batch, spatial, dweight, dbias);
    double sum = 0; // of a gradient through a batch norm: 0, since a constant added to x changes nothing
    for (float g : dx)
        sum += g;
    std::printf("cnorm %s, %s: mean %.4f, dweight %.4f, dbias %.4f, sum of dx %.0e\n", cnorm_version(), cnorm_isa(),
                norm.mean[0], dweight[0], dbias[0], std::fabs(sum));
    return std::fabs(sum) < 1e-3 ? 0 : 1;
} catch (const std::exception &error) {
    std::fprintf(stderr, "training_step: %s\n", error.what());
    return 1;
}
