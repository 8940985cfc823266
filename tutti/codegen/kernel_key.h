// The inverse of KernelSpec::key().
#pragma once

#include <string_view>

#include "tutti/codegen/kernel.h"

namespace tutti::codegen {

// The specification that has this key; it has no name. UsageError when the bytes are not the key of one.
KernelSpec spec_of_key(std::string_view key);

}  // namespace tutti::codegen
