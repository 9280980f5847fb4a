# Perplexity against substituted gate weight, with intervals where there are some.
# data.tsv: a block for each policy; 1 policy, 2 trace, 3 cache, 4 lost_mass, 5 perplexity (change), 6 low, 7 high
set xlabel mass_label." (%)"
set ylabel perplexity_label
set xrange [0:*]
set offsets graph 0.02, graph 0.03, graph 0.05, 0
plot for [i = 0:n_series-1] "data.tsv" index i using (100*$4):5:6:7 with yerrorbars ls style_of(i) ps 0 notitle, \
     for [i = 0:n_series-1] "data.tsv" index i using (100*$4):5 with points ls style_of(i) title columnheader(1)
