/* What ggml_backend_load looks for in libgatemass-engine.so. A host that links to the library does not need it: gm_engine_attach makes the
 * device known by itself. */
#include "engine/plugin_private.h"

ggml_backend_reg_t ggml_backend_init(void);
int ggml_backend_score(void);

ggml_backend_reg_t ggml_backend_init(void)
{
	return plugin_registry();
}

int ggml_backend_score(void)
{
	return 1;
}
