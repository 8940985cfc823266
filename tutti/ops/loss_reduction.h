// How the losses of single elements are reduced.
#pragma once

#include <cstdint>

namespace tutti {

enum class LossReduction : uint8_t { none, sum, mean };

}  // namespace tutti
