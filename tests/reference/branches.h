/*
 * The rules of semantics.md and the rare branches in them that the reference replay counts: X(enum ref_branch, its name).
 * The one list behind the enum and the names, in the order in which ref_coverage_print() prints them.
 */
#ifndef GATEMASS_TESTS_REFERENCE_BRANCHES_H
#define GATEMASS_TESTS_REFERENCE_BRANCHES_H

#define REF_BRANCHES(X)                                                                                                \
	X(REF_R1_SOFTMAX, "R1 softmax row")                                                                            \
	X(REF_R1_SIGMOID, "R1 sigmoid row")                                                                            \
	X(REF_R2_BY_LOGIT, "R2 selection by logit (no bias, no groups)")                                               \
	X(REF_R2_BY_SCORE, "R2 selection by p + b")                                                                    \
	X(REF_R2_GROUPS, "R2 selection with groups")                                                                   \
	X(REF_R2_TIE, "R2 tie in selection")                                                                           \
	X(REF_R2_GROUP_TIE, "R2 tie in group score")                                                                   \
	X(REF_R2_GROUP_BARS, "R2 group limit bars an expert better than a selected one")                               \
	X(REF_R3_WEIGHTS, "R3 weights by p")                                                                           \
	X(REF_R3_ZERO_SUM, "R3 weights 1/k because the sum is 0")                                                      \
	X(REF_R4_LAYER, "R4 scope layer run")                                                                          \
	X(REF_R4_GLOBAL, "R4 scope global run")                                                                        \
	X(REF_R4_FEWER_THAN_K, "R4 layer with 0 < C < k")                                                              \
	X(REF_R4_NO_SLOT, "R4 layer with C = 0")                                                                       \
	X(REF_R5_COLD, "R5 cold start")                                                                                \
	X(REF_R5_PRELOAD, "R5 expert preloaded by popularity")                                                         \
	X(REF_R5_PRELOAD_ALL, "R5 expert preloaded by preload_all")                                                    \
	X(REF_R5_PRELOAD_TIE, "R5 popularity tie at the preload's edge")                                               \
	X(REF_R5_PRELOAD_UNREQUESTED, "R5 expert preloaded that the preload trace never requests")                     \
	X(REF_R5_PRELOAD_POOL_FULL, "R5 preload ends because the pool is full")                                        \
	X(REF_R5_PRELOAD_HIT, "R5 first access of a preloaded expert is a hit")                                        \
	X(REF_R5_RESET, "R5 reset at a new sequence")                                                                  \
	X(REF_R5_RESET_DROPS_COPY, "R5 reset drops a queued copy or one under way")                                    \
	X(REF_R5_RESET_DROPS_ACC, "R5 reset clears an accumulator above 0")                                            \
	X(REF_R5_WARMUP, "R5 token left out as warm-up")                                                               \
	X(REF_R5_WARMUP_CUTS_PASS, "R5 warm-up ends inside a batch pass")                                              \
	X(REF_R5_WARMUP_SHARED_ACCESS, "R5 expert requested by a warm-up row and again by a counted row of one event") \
	X(REF_ABSENT_ROW, "absent row")                                                                                \
	X(REF_ABSENT_ROW_IN_EVENT, "absent row in an event that has others")                                           \
	X(REF_ABSENT_EVENT, "absent event")                                                                            \
	X(REF_BATCH_EVENT, "event with several rows")                                                                  \
	X(REF_R6_START, "R6 queued copy starts")                                                                       \
	X(REF_R6_DELAYED_BY_LINK, "R6 queued copy starts late because the link was busy")                              \
	X(REF_R6_LINK_BUSY, "R6 queue stops: the link is busy beyond T1")                                              \
	X(REF_R6_WAITS_FOR_DISK, "R6 queue stops: the head's read ends after T1")                                      \
	X(REF_R6_HEAD_BLOCKS, "R6 FIFO head blocks a copy that could start")                                           \
	X(REF_R6_LAND, "R6 copy lands")                                                                                \
	X(REF_R6_STILL_UNDER_WAY, "R6 copy still under way after landing")                                             \
	X(REF_R7_HIT, "R7 hit")                                                                                        \
	X(REF_R7_LATE_QUEUED, "R7 late, copy queued")                                                                  \
	X(REF_R7_LATE_UNDER_WAY, "R7 late, copy under way")                                                            \
	X(REF_R7_MISS, "R7 miss")                                                                                      \
	X(REF_R7_SHARED, "R7 one expert in several rows of an event")                                                  \
	X(REF_R8_FETCH, "R8 FETCH")                                                                                    \
	X(REF_R8_SUBSTITUTE, "R8 SUBSTITUTE")                                                                          \
	X(REF_R8_DROP, "R8 DROP")                                                                                      \
	X(REF_R8_CPU, "R8 CPU")                                                                                        \
	X(REF_R8_OVERRULED, "R8 another answer becomes FETCH because another row says so")                             \
	X(REF_R8_TAU_EQUAL, "R8 weight equals tau")                                                                    \
	X(REF_R9_SUBSTITUTE, "R9 substitute found")                                                                    \
	X(REF_R9_TIE, "R9 tie between substitutes")                                                                    \
	X(REF_R9_IGNORES_GROUPS, "R9 substitute from a group that is not eligible")                                    \
	X(REF_R9_ALREADY_USED, "R9 best resident is already a substitute in this row")                                 \
	X(REF_R9_SHARED, "R9 one resident substitutes in several rows")                                                \
	X(REF_R9_FALLBACK, "R9 fallback: no substitute left")                                                          \
	X(REF_R9_FALLBACK_OTHER_KEEPS, "R9 fallback while another row keeps its substitute")                           \
	X(REF_R10_FETCH_KEPT, "R10 fetched and inserted")                                                              \
	X(REF_R10_LATE_HIT_QUEUED, "R10 late hit, queued copy promoted")                                               \
	X(REF_R10_LATE_HIT_UNDER_WAY, "R10 late hit, copy under way")                                                  \
	X(REF_R10_LATE_MISS, "R10 late counted as miss")                                                               \
	X(REF_R11_FREE, "R11 room without a victim")                                                                   \
	X(REF_R11_EVICT, "R11 eviction")                                                                               \
	X(REF_R11_OTHER_LAYER, "R11 victim from another layer")                                                        \
	X(REF_R11_SEVERAL_VICTIMS, "R11 several victims for one expert")                                               \
	X(REF_R11_NO_ROOM, "R11 bypass: nothing left to evict")                                                        \
	X(REF_R11_NO_ROOM_RESERVED, "R11 nothing left to evict while a slot is reserved")                              \
	X(REF_R11_EVICTED_IN_VAIN, "R11 no room although something was evicted for it")                                \
	X(REF_R11_LARGER_THAN_POOL, "R11 expert larger than the pool")                                                 \
	X(REF_R12_ADD, "R12 weight added to acc")                                                                      \
	X(REF_R12_LATE, "R12 pick left out: it was late")                                                              \
	X(REF_R12_FETCHED, "R12 pick left out: fetched in this event")                                                 \
	X(REF_R12_QUEUED, "R12 pick left out: queued in this event")                                                   \
	X(REF_R12_BELOW, "R12 acc below beta")                                                                         \
	X(REF_R12_QUEUE, "R12 copy queued")                                                                            \
	X(REF_R12_REFUSED, "R12 reservation refused, acc kept")                                                        \
	X(REF_R12_RETRY, "R12 copy queued after an earlier refusal")                                                   \
	X(REF_R12_FETCH_KEEPS_ACC, "R12 fetch of an expert with acc above 0")                                          \
	X(REF_R12_BETA_EQUAL, "R12 acc equals beta")                                                                   \
	X(REF_R13_SUBSTITUTED, "R13 row with substituted mass")                                                        \
	X(REF_R13_DROPPED, "R13 row with dropped mass")                                                                \
	X(REF_R14_AT_T1, "R14 fetch starts at T1")                                                                     \
	X(REF_R14_WAITS_FOR_LINK, "R14 fetch waits for the link")                                                      \
	X(REF_R14_WAITS_FOR_DISK, "R14 fetch waits for its read")                                                      \
	X(REF_R14_OVERTAKES, "R14 fetch starts ahead of a queued copy")                                                \
	X(REF_R14_BEHIND_BACKGROUND, "R14 fetch waits for a background copy under way")                                \
	X(REF_R15_FROM_T1, "R15 hits and substitutes computed from T1")                                                \
	X(REF_R15_HIT_IS_SUBSTITUTE, "R15 expert is a hit in one row and a substitute in another")                     \
	X(REF_R15_WAITS, "R15 GPU waits for a fetched expert")                                                         \
	X(REF_R15_NO_WAIT, "R15 fetched expert arrived before the GPU was free")                                       \
	X(REF_R16_CPU, "R16 CPU computes")                                                                             \
	X(REF_R16_CPU_LAST, "R16 CPU ends the layer")                                                                  \
	X(REF_R16_GPU_LAST, "R16 GPU ends the layer although the CPU had picks")                                       \
	X(REF_R16_WAITS_FOR_DISK, "R16 CPU waits for a read")                                                          \
	X(REF_R17_TOKEN, "R17 pass counted")                                                                           \
	X(REF_R17_PASS_LEFT_OUT, "R17 pass left out")                                                                  \
	X(REF_R18_READ, "R18 read from disk")                                                                          \
	X(REF_R18_DISK_BUSY, "R18 read waits for the disk")                                                            \
	X(REF_R18_BACKGROUND, "R18 issue for a background copy")                                                       \
	X(REF_R18_HOST_HIT, "R18 found in host RAM")                                                                   \
	X(REF_R18_IN_FLIGHT, "R18 promoted copy waits for its read, still in flight")                                  \
	X(REF_R18_HOST_EVICT, "R18 expert leaves host RAM")                                                            \
	X(REF_R18_EVICT_IN_FLIGHT, "R18 expert leaves host RAM before its read has ended")                             \
	X(REF_R18_LARGER_THAN_HOST, "R18 expert larger than host RAM")                                                 \
	X(REF_R19_DISK_WAIT, "R19 disk wait")                                                                          \
	X(REF_R19_LINK_WAIT, "R19 link wait")                                                                          \
	X(REF_R19_DISK_THEN_LINK, "R19 one gap is disk wait, then link wait")                                          \
	X(REF_R19_CPU_WAIT, "R19 CPU wait")                                                                            \
	X(REF_EVICT_LRU, "lru victim")                                                                                 \
	X(REF_EVICT_FIFO, "fifo victim")                                                                               \
	X(REF_EVICT_LFU, "lfu victim")                                                                                 \
	X(REF_EVICT_LFU_TIE, "lfu victim after a tie of counts")                                                       \
	X(REF_EVICT_DECAY, "lfu-decay victim")                                                                         \
	X(REF_EVICT_DECAY_TIE, "lfu-decay victim after a tie of decayed counts")                                       \
	X(REF_EVICT_BELADY, "belady victim with a next access")                                                        \
	X(REF_EVICT_BELADY_NEVER, "belady victim that is never accessed again")                                        \
	X(REF_EVICT_BELADY_NEVER_TIE, "belady tie: several are never accessed again")                                  \
	X(REF_EVICT_BELADY_EVENT_TIE, "belady tie: next access in the same event")                                     \
	X(REF_EVICT_BELADY_BYPASS, "belady-bypass: the fetched expert itself is not kept")                             \
	X(REF_EVICT_BELADY_BYPASS_TIE, "belady-bypass: tie between the fetched expert and a resident")

#endif
