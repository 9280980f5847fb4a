# Hit rate against cache size, a line for each policy.
# data.tsv: a block for each policy; 1 policy, 2 trace, 3 cache, 4 cache_fraction, 5 hit_rate
set xlabel "experts that fit the cache (%)"
set ylabel "hit rate (%)"
set xrange [0:*]
set yrange [0:*]
set offsets 0, graph 0.03, graph 0.03, 0
plot for [i = 0:n_series-1] "data.tsv" index i using (100*$4):(100*$5) with linespoints ls style_of(i) title columnheader(1)
