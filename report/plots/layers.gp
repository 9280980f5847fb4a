# Heat map of the hit rate: layers across, results down. For misses a token put column 6 and factor 1, for lost gate weight column 7.
# data.tsv: one block; 1 trace, 2 policy, 3 cache, 4 layer, 5 hit_rate, 6 misses_per_token, 7 lost_mass
measure = 5
factor = 100
set xlabel "layer"
set cblabel "hit rate (%)"
set xrange [-0.5:n_layer-0.5]
set yrange [-n_row/n_layer+0.5:0.5]
set ytics scale 0 noenhanced font ",6.5"
set xtics scale 0
unset grid
unset key
set palette defined (0 "#EEF4FA", 1 "#B4D2EA", 2 "#5F9FD1", 3 "#2068A6", 4 "#0A3160")
set style fill solid 1.0 noborder
line_of(row) = -floor(row / n_layer)
plot "data.tsv" skip 1 using 4:(line_of($0)):($4-0.5):($4+0.5):(line_of($0)-0.47):(line_of($0)+0.47):(factor*column(measure)) \
         with boxxyerror lc palette, \
     "data.tsv" skip 1 using (NaN):(line_of($0)):ytic(stringcolumn(2).", ".stringcolumn(3)) with points pt 0
