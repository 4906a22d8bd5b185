/* What this library is and how it was built. */
#include "cnorm.h"

#ifndef CN_VERSION
#define CN_VERSION CNORM_VERSION
#endif

#ifndef CN_COMPILER
#ifdef __VERSION__
#define CN_COMPILER __VERSION__
#else
#define CN_COMPILER "unknown"
#endif
#endif

const char *cnorm_version(void) { return CN_VERSION; }
const char *cnorm_compiler(void) { return CN_COMPILER; }

int cnorm_has_openmp(void)
{
#ifdef _OPENMP
    return 1;
#else
    return 0;
#endif
}

const char *cnorm_status_string(cnorm_status status)
{
    switch (status) {
    case CNORM_OK:
        return "ok";
    case CNORM_ERROR_NULL:
        return "a pointer that must not be NULL is NULL";
    case CNORM_ERROR_VALUE:
        return "a scalar or a size is out of its range";
    case CNORM_ERROR_OVERLAP:
        return "an output overlaps an input without being it";
    case CNORM_ERROR_WORKSPACE:
        return "the workspace is missing, too small or not aligned to 8 bytes";
    case CNORM_ERROR_ISA:
        return "no such instruction set level on this machine";
    }
    return "unknown status";
}
