/* The trade-off front: the points that no other point beats in both values. */
#ifndef GM_REPORT_FRONT_H
#define GM_REPORT_FRONT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Smaller is better in x and y [n]; a point with a NaN is never on the front. on [n] tells who is; of equal points all are. order [n]
 * (may be NULL) gets the front's points by growing x, n_front their number. */
int gm_front(const double *x, const double *y, size_t n, bool *on, size_t *order, size_t *n_front, struct gm_error *err);

#endif
