// Replay of anonymous random keys: a computation that runs again draws the same random numbers as in its first run.
#pragma once

#include <string>
#include <vector>

#include "tutti/ops/random_key.h"

namespace tutti {

// While this object lives, next_random_key() on this thread returns `keys` in order. UsageError, whose message begins
// with `who`, when more keys are drawn.
class KeysAgain final : public KeySource {
 public:
  KeysAgain(std::vector<RandomKey> keys, std::string who);
  ~KeysAgain();
  KeysAgain(const KeysAgain&) = delete;
  KeysAgain& operator=(const KeysAgain&) = delete;
  RandomKey next_key(std::string_view module_path) override;
  std::function<void()> mark() override;

 private:
  const std::vector<RandomKey> keys_;
  const std::string who_;
  size_t next_ = 0;
  KeySource* previous_;
};

}  // namespace tutti
