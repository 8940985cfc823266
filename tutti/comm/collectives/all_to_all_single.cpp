// all_to_all_single: dim 0 of the input is cut into one part for each rank. The parts are equal, or as long as the splits say,
// which is all_to_all_v_single.
#include "tutti/comm/call_checks.h"
#include "tutti/comm/collective_def.h"
#include "tutti/comm/exchanges/move.h"

namespace tutti::comm {
namespace {

// Without splits the parts are equal.
void exchange_parts(const char* op, Move& m, const CallPart& part) {
  m.offer_parts(DenseInput(part.input()), checks::split_bytes(op, "input", part.input(), part.call.input_splits, part.seat.ranks));
  m.take_parts(DenseOutput(part.output()), checks::split_bytes(op, "output", part.output(), part.call.output_splits, part.seat.ranks));
}

void check_parts(const char* op, const CallPart& part) {
  checks::split_bytes(op, "input", part.input(), part.call.input_splits, part.seat.ranks);
  checks::split_bytes(op, "output", part.output(), part.call.output_splits, part.seat.ranks);
}

}  // namespace
}  // namespace tutti::comm

TUTTI_COLLECTIVE(all_to_all_single) {
    .name = "all_to_all_single",
    .former_names = {"alltoall_base"},
    .outputs = Given::whole,
    .inputs = Given::whole,
    .sizes =
        [](const char* op, const CallPart& part) {
          checks::same_numel(op, "input", part.input(), "output", part.output());
          check_parts(op, part);
        },
    .move = [](Move& m, const CallPart& part) { exchange_parts("all_to_all_single", m, part); },
    .source =
        [](int64_t i, int64_t n, const Seat& seat, int) {
          return Source{static_cast<int>(i / n), static_cast<int>(i / n) + 1, seat.rank * n + i % n};
        },
    .wire = [](double ranks) { return (ranks - 1) / ranks; },
};

TUTTI_COLLECTIVE(all_to_all_v_single) {
    .name = "all_to_all_v_single",
    .outputs = Given::whole,
    .inputs = Given::whole,
    .has_splits = true,
    .evenness = Evenness::pairwise,
    .sizes = check_parts,
    .move = [](Move& m, const CallPart& part) { exchange_parts("all_to_all_v_single", m, part); },
};
