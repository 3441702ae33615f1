/* How much of a product is computed together: sums of MOST_ROWS rows by PANELS of LANES outputs fill
   the vector registers. */

#pragma once

#define MOST_ROWS 6
#if defined(__AVX512F__) /* 32 registers of 16 */
#define LANES 16
#define PANELS 4
#elif defined(__AVX__) /* 16 of 8 */
#define LANES 8
#define PANELS 2
#else /* NEON has 32 of 4 */
#define LANES 4
#define PANELS 4
#endif
