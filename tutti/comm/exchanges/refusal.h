// Refusal: takes the place of a call that a rank found wrong before making it.
//
// Without it the other ranks would meet this rank's next call with their present one, and where the two look alike
// exchange the wrong data without a word. All ranks send each other their reasons in one exchange, which ends with the
// same UsageError on all.
#pragma once

#include <memory>
#include <string>

#include "tutti/comm/collective.h"

namespace tutti::comm {

// `call` is what this rank calls, `why` the reason for which it refuses it; "": other ranks refuse theirs.
std::unique_ptr<Collective> make_refusal(const CallRecord& call, const std::string& group, int rank, int ranks,
                                         std::string why);

}  // namespace tutti::comm
