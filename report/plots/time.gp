# Where the time of a token goes: a bar for each result, parts beside each other.
# data.tsv: one block; 1 trace, 2 policy, 3 cache, 4 dense, 5 gpu, 6 link wait, 7 disk wait, 8 cpu wait, 9 token, 10 all (µs)
set xlabel time_label
set xrange [0:*]
set yrange [-n_row+0.4:0.6]
set grid noytics
set ytics scale 0 noenhanced font ",6.5"
set key samplen 0.8 width 0 maxrows 2
set style fill solid 1.0 noborder
array colour[6] = ["#8B96A1", "#0072B2", "#E69F00", "#D55E00", "#CC79A7", "#009E73"]
array part[6] = ["dense", "GPU", "link wait", "disk wait", "CPU wait", "once a token"]
length(k) = column(3 + k) == column(3 + k) ? column(3 + k) : 0
before(k) = k > 1 ? before(k - 1) + length(k - 1) : 0
stats "data.tsv" using 7 nooutput name "disk"
stats "data.tsv" using 8 nooutput name "cpu"
used(k) = k == 4 ? disk_max > 0 : k == 5 ? cpu_max > 0 : 1
plot for [k = 1:6] (used(k) ? "data.tsv" : "/dev/null") skip 1 \
         using (time_unit*(before(k) + length(k)/2)):(-$0):(time_unit*before(k)):(time_unit*(before(k) + length(k))):(-$0-0.38):(-$0+0.38) \
         with boxxyerror lc rgb colour[k] title (used(k) ? part[k] : ""), \
     "data.tsv" skip 1 using (0):(-$0):ytic(stringcolumn(2).", ".stringcolumn(3)) with points pt 0 notitle
