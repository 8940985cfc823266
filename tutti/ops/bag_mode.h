// How the rows of a bag are pooled.
#pragma once

#include <cstdint>

namespace tutti {

enum class BagMode : uint8_t { sum, mean, max };

}  // namespace tutti
