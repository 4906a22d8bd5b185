/* ISA levels: which are built in, which this machine runs, which is in use. */
#include "cnorm.h"
#include "cpu.h"

#include <stdatomic.h>
#include <string.h>

struct cn_table_f32;
struct cn_table_f64;

typedef struct {
    const char *name;
    bool (*runs_here)(void);
    const struct cn_table_f32 *f32;
    const struct cn_table_f64 *f64;
} level;

static bool always(void) { return true; }

/* A dtype that was left out (see the Makefile) has no tables, and no function that would ask for one. */
#if defined(CN_WITHOUT_f32)
#define TABLE_F32(level) NULL
#else
#define TABLE_F32(level) &cn_table_f32_##level
#endif
#if defined(CN_WITHOUT_f64)
#define TABLE_F64(level) NULL
#else
#define TABLE_F64(level) &cn_table_f64_##level
#endif

#if defined(CN_HAVE_avx512)
extern const struct cn_table_f32 cn_table_f32_avx512;
extern const struct cn_table_f64 cn_table_f64_avx512;
#endif
#if defined(CN_HAVE_avx2)
extern const struct cn_table_f32 cn_table_f32_avx2;
extern const struct cn_table_f64 cn_table_f64_avx2;
#endif
#if defined(CN_HAVE_sve)
extern const struct cn_table_f32 cn_table_f32_sve;
extern const struct cn_table_f64 cn_table_f64_sve;
#endif
#if defined(CN_HAVE_rvv)
extern const struct cn_table_f32 cn_table_f32_rvv;
extern const struct cn_table_f64 cn_table_f64_rvv;
#endif
#if defined(CN_HAVE_neon)
extern const struct cn_table_f32 cn_table_f32_neon;
extern const struct cn_table_f64 cn_table_f64_neon;
#else
extern const struct cn_table_f32 cn_table_f32_base;
extern const struct cn_table_f64 cn_table_f64_base;
#endif

/* Best first. The last one runs on every machine of the architecture. */
static const level levels[] = {
#if defined(CN_HAVE_avx512)
    {"avx512", cn_cpu_has_avx512, TABLE_F32(avx512), TABLE_F64(avx512)},
#endif
#if defined(CN_HAVE_avx2)
    {"avx2", cn_cpu_has_avx2, TABLE_F32(avx2), TABLE_F64(avx2)},
#endif
#if defined(CN_HAVE_sve)
    {"sve", cn_cpu_has_sve, TABLE_F32(sve), TABLE_F64(sve)},
#endif
#if defined(CN_HAVE_rvv)
    {"rvv", cn_cpu_has_rvv, TABLE_F32(rvv), TABLE_F64(rvv)},
#endif
#if defined(CN_HAVE_neon)
    {"neon", always, TABLE_F32(neon), TABLE_F64(neon)},
#else
    {"base", always, TABLE_F32(base), TABLE_F64(base)},
#endif
};
#define LEVELS ((int)(sizeof levels / sizeof levels[0]))

static const level *nth_level(int i)
{
    for (int l = 0; l < LEVELS; l++)
        if (levels[l].runs_here() && i-- == 0)
            return &levels[l];
    return NULL;
}

static const level *_Atomic in_use = NULL;

/* Two threads that meet here at the first call store the same pointer. */
static const level *current(void)
{
    const level *l = atomic_load_explicit(&in_use, memory_order_relaxed);
    if (!l) {
        l = nth_level(0);
        atomic_store_explicit(&in_use, l, memory_order_relaxed);
    }
    return l;
}

const struct cn_table_f32 *cn_kernels_f32(void) { return current()->f32; }
const struct cn_table_f64 *cn_kernels_f64(void) { return current()->f64; }

const char *cnorm_isa_level(int i)
{
    const level *l = i >= 0 ? nth_level(i) : NULL;
    return l ? l->name : NULL;
}

const char *cnorm_isa(void) { return current()->name; }

cnorm_status cnorm_set_isa(const char *name)
{
    if (!name)
        return CNORM_ERROR_NULL;
    for (int i = 0; nth_level(i); i++)
        if (strcmp(nth_level(i)->name, name) == 0) {
            atomic_store_explicit(&in_use, nth_level(i), memory_order_relaxed);
            return CNORM_OK;
        }
    return CNORM_ERROR_ISA;
}
