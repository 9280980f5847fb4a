/* The subcommands of the `report` program, one file each (cmd_*.c). */
#ifndef GM_REPORT_COMMANDS_H
#define GM_REPORT_COMMANDS_H

#include "base/options.h"

extern const struct gm_command gm_report_html;
extern const struct gm_command gm_report_plot;
extern const struct gm_command gm_report_table;
extern const struct gm_command gm_report_stats;
extern const struct gm_command gm_report_timeline;
extern const struct gm_command gm_report_merge;
extern const struct gm_command gm_report_check;

#endif
