/* What stands in the header of a recorded trace: the chosen layers' facts, and under which circumstances they were recorded. */
#ifndef GM_RECORDER_RECORD_HEADER_H
#define GM_RECORDER_RECORD_HEADER_H

#include "recorder/record.h"

struct gm_record_layers {
	struct gm_model model; /* facts of the chosen layers only */
	uint32_t n_all;        /* MoE layers of the model */
	uint32_t *place;       /* [n_all] a layer's number in the trace, UINT32_MAX: not recorded */
};

/* list: "0,4..7", NULL: all. */
int gm_record_layers_choose(struct gm_record_layers *layers, const struct gm_model *model, const char *list,
			    struct gm_error *err);
void gm_record_layers_free(struct gm_record_layers *layers);

/* Library, devices, model and settings. NULL: out of memory. */
struct gm_json *gm_record_metadata(const struct gm_hook *hook, const struct gm_record_options *options,
				   const struct gm_record_layers *layers, struct gm_error *err);

#endif
