/* `traces`: reads, writes and changes recorded router logits. */
#include "traces/commands.h"

#include <stdio.h>
#include <zstd.h>

int main(int argc, char **argv)
{
	const struct gm_command commands[] = {
		gm_traces_info,  gm_traces_verify, gm_traces_import, gm_traces_export,
		gm_traces_synth, gm_traces_cut,    gm_traces_cat,    gm_traces_stats,
	};
	char detail[32];
	const struct gm_program program = {
		.name = "traces",
		.help = "router-logit traces of Mixture-of-Experts models: look, check, convert, cut, make",
		.commands = commands,
		.n_command = sizeof(commands) / sizeof(commands[0]),
		.detail = detail,
	};

	snprintf(detail, sizeof(detail), "zstd %s", ZSTD_versionString());
	return gm_program_main(&program, argc, argv);
}
