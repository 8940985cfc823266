// Anonymous keys of random numbers that were drawn, given once more: what runs again has the numbers of its first run.
#pragma once

#include <string>
#include <vector>

#include "tutti/ops/random_key.h"

namespace tutti {

// Gives this thread `keys`, in order, while it lives. UsageError when more are drawn, which begins with `who`.
class KeysAgain final : public KeySource {
 public:
  KeysAgain(std::vector<RandomKey> keys, std::string who);
  ~KeysAgain();
  KeysAgain(const KeysAgain&) = delete;
  KeysAgain& operator=(const KeysAgain&) = delete;
  RandomKey next_key() override;

 private:
  const std::vector<RandomKey> keys_;
  const std::string who_;
  size_t next_ = 0;
  KeySource* previous_;
};

}  // namespace tutti
