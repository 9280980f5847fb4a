# Time per token against substituted gate weight; results on the trade-off front of their cache size are ringed.
# data.tsv: a block for each policy; 1 policy, 2 trace, 3 cache, 4 cache_fraction, 5 lost_mass, 6 time_per_token_us, 7 front
set xlabel mass_label." (%)"
set ylabel time_label
set xrange [0:*]
set offsets graph 0.02, graph 0.03, graph 0.05, graph 0.05
plot for [i = 0:n_series-1] "data.tsv" index i using (100*$5):(time_unit*$6) with points ls style_of(i) title columnheader(1), \
     for [i = 0:n_series-1] "data.tsv" index i using (stringcolumn(7) eq "yes" ? 100*$5 : NaN):(time_unit*$6) \
         with points pt 6 ps 1.0 lw 0.7 lc rgb "#30363C" notitle
