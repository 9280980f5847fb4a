/* Stack distances: the experts of one layer in order of their last request, and at which place of that order a request finds its expert
 * (Mattson, Gecsei, Slutz, Traiger, "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2), 1970). With at least as many slots
 * as an event has requests, an LRU cache of C slots holds, at the start of every event, the C experts requested last; so a request hits in all
 * caches of more slots than its place.
 *
 * Every request takes the next moment of a line of moments; an expert's place is how many moments behind its own are some expert's last. They
 * are bits, and each word of them knows how many there are in the words behind it; when the line is full, the moments are renumbered (after
 * Bennett and Kruskal, "LRU stack processing", IBM Journal of Research and Development 19(4), 1975).
 */
#ifndef GM_SIM_STACK_H
#define GM_SIM_STACK_H

#include <stddef.h>
#include <stdint.h>

struct gm_stack;

/* A stack is one flat block; n_expert and top_k: at most 65,535. */
size_t gm_stack_bytes(uint32_t n_expert, uint32_t top_k);

/* Makes memory [gm_stack_bytes], aligned for any type, an empty stack. */
struct gm_stack *gm_stack_init(void *memory, uint32_t n_expert, uint32_t top_k);

/* Forgets all requests. */
void gm_stack_clear(struct gm_stack *stack);

/* One event: pick [top_k] distinct experts in request order. place [top_k] out: as it was at the start of the event, n_expert for an expert that was
 * never requested. */
void gm_stack_request(struct gm_stack *stack, const uint16_t *pick, uint32_t *place);

/* How many experts were requested so far. */
uint32_t gm_stack_depth(const struct gm_stack *stack);

#endif
