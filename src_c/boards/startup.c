/* From reset to main: the FPU, .data and .bss, semihosting. For any Cortex-M; exceptions end the program with an error. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern uint32_t stack_top, data_start, data_end, data_source, bss_start, bss_end;
extern void initialise_monitor_handles(void);
extern int main(void);

static void fault(void) { _Exit(3); }

void reset(void)
{
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    *(volatile uint32_t *)0xe000ed88 |= 0xfu << 20; /* CPACR: full access to CP10 and CP11 */
    __asm__ volatile("dsb\n\tisb");
#endif
    memcpy(&data_start, &data_source, (size_t)((char *)&data_end - (char *)&data_start));
    memset(&bss_start, 0, (size_t)((char *)&bss_end - (char *)&bss_start));
    initialise_monitor_handles();
    exit(main());
}

__attribute__((section(".vectors"), used)) static void *const vectors[] = {
    &stack_top, (void *)reset, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault,
};
