# Hit rate and lost gate weight around topic switches, means of some tokens each.
# data.tsv: a block for each policy; 1 policy, 2 trace, 3 cache, 4 from_token, 5 to_token, 6 tokens, 7 hit_rate, 8 lost_mass, 9 time_us
set multiplot layout 2,1 margins char 7, char 2, char 3.8, char 2.5 spacing char 2
set xrange [*:*]
set arrow 1 from first -0.5, graph 0 to first -0.5, graph 1 nohead dt 2 lc rgb "#30363C" lw 0.7
set ylabel "hit rate (%)"
set format x ""
plot for [i = 0:n_series-1] "data.tsv" index i using (($4+$5)/2):(100*$7) with linespoints ls style_of(i) ps 0.3 title columnheader(1)
unset key
set format x "%g"
set xlabel "tokens since the topic switch"
set ylabel "lost weight (%)"
plot for [i = 0:n_series-1] "data.tsv" index i using (($4+$5)/2):(100*$8) with linespoints ls style_of(i) ps 0.3 title columnheader(1)
unset multiplot
