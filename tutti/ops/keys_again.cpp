#include "tutti/ops/keys_again.h"

#include <utility>

#include "tutti/core/error.h"

namespace tutti {

KeysAgain::KeysAgain(std::vector<RandomKey> keys, std::string who)
    : keys_(std::move(keys)), who_(std::move(who)), previous_(KeySource::set_current(this)) {}

KeysAgain::~KeysAgain() { KeySource::set_current(previous_); }

RandomKey KeysAgain::next_key(std::string_view) {
  TUTTI_CHECK(next_ < keys_.size(),
              "{} drew {} anonymous random keys, and draws more when it runs again; what it draws must depend on its "
              "inputs only",
              who_, keys_.size());
  return keys_[next_++];
}

std::function<void()> KeysAgain::mark() {
  return [this, next = next_] { next_ = next; };
}

}  // namespace tutti
