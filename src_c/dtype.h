/* real and acc for -DCN_REAL=f32 or f64. acc is apart from real so that 16-bit storage can be added. */
#ifndef CN_DTYPE_H
#define CN_DTYPE_H

typedef float cn_real_f32;
typedef double cn_real_f64;

#define CN_DTYPE_NAME_(name, dtype) name##_##dtype
#define CN_DTYPE_NAME(name, dtype) CN_DTYPE_NAME_(name, dtype)

typedef CN_DTYPE_NAME(cn_real, CN_REAL) real;
typedef double acc;

#endif
