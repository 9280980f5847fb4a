#include "report/front.h"

#include <math.h>
#include <stdlib.h>

struct point {
	double x, y;
	size_t index;
};

static int by_x_then_y(const void *a, const void *b)
{
	const struct point *p = a, *q = b;

	if (p->x != q->x)
		return p->x < q->x ? -1 : 1;
	if (p->y != q->y)
		return p->y < q->y ? -1 : 1;
	return p->index < q->index ? -1 : p->index > q->index;
}

int gm_front(const double *x, const double *y, size_t n, bool *on, size_t *order, size_t *n_front, struct gm_error *err)
{
	struct point *point = gm_alloc(n, sizeof(*point), err);
	double best = (double)INFINITY, at = (double)NAN;
	size_t known = 0, found = 0;

	if (!point)
		return GM_ERR_MEMORY;
	for (size_t i = 0; i < n; i++) {
		on[i] = false;
		if (!isnan(x[i]) && !isnan(y[i]))
			point[known++] = (struct point){x[i], y[i], i};
	}
	qsort(point, known, sizeof(*point), by_x_then_y);
	for (size_t i = 0; i < known; i++) {
		bool equal = point[i].y == best && point[i].x == at;

		if (point[i].y >= best && !equal)
			continue;
		best = point[i].y;
		at = point[i].x;
		on[point[i].index] = true;
		if (order)
			order[found] = point[i].index;
		found++;
	}
	if (n_front)
		*n_front = found;
	free(point);
	return GM_OK;
}
