// Pass: calls that share their first inputs become one call.
#pragma once

namespace tutti::graph {

struct PassState;

// Afterwards calls of an op with `siblings` (op_def.h) that share their first inputs and have equal attrs, such as the
// projections of queries, keys and values, are one call, which stands where the first of them stood. Calls that have
// to stay apart are named with the reason in the statistics.
void merge_siblings(PassState& state);

}  // namespace tutti::graph
