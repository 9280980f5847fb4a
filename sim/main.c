/* The `sim` program: replays traces under policies. */
#include "sim/commands.h"

int main(int argc, char **argv)
{
	const struct gm_command commands[] = {gm_sim_run, gm_sim_sweep, gm_sim_curve, gm_sim_policies};
	const struct gm_program program = {
		.name = "sim",
		.help = "Replays router traces of a Mixture-of-Experts model under expert-cache policies.",
		.commands = commands,
		.n_command = sizeof(commands) / sizeof(*commands),
	};

	return gm_program_main(&program, argc, argv);
}
