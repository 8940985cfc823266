// The counterparts of TorchTitan's configuration keys, for those who bring theirs.
#pragma once

#include <string>
#include <string_view>

namespace tutti::train {

// A sentence for the error about an unknown section or key, such as "training.local_batch_size is TorchTitan's; set
// training.global_batch_tokens, ...". "" when TorchTitan has no such key. `key` is empty for a section.
std::string torchtitan_hint(std::string_view section, std::string_view key);

}  // namespace tutti::train
