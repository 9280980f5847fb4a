/* `report`: result files as pages, plots, tables and statistics. */
#include "report/commands.h"

int main(int argc, char **argv)
{
	const struct gm_command commands[] = {gm_report_html,     gm_report_plot,  gm_report_table, gm_report_stats,
					      gm_report_timeline, gm_report_merge, gm_report_check};
	const struct gm_program program = {
		.name = "report",
		.help = "shows results of gatemass: pages, plots, tables, statistics, timelines",
		.commands = commands,
		.n_command = sizeof(commands) / sizeof(*commands),
	};

	return gm_program_main(&program, argc, argv);
}
