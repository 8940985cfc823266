// TextStream: the text of generated tokens, as it comes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/io/tokenizer.h"

namespace tutti::generate::serve {

// Takes token ids one by one and gives text as soon as nothing that follows can change it: characters whose bytes have
// not all come are held back, and so is the longest end of the text that a stop string begins with. A stop string may
// span tokens, and begin and end within one; it ends the text and is not part of it. The text is valid UTF-8: bytes
// that are none become U+FFFD. For one thread.
class TextStream {
 public:
  // The tokenizer must outlive the stream. UsageError for a stop string that is empty.
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops);

  // The text that the token makes certain. Special tokens are not part of the text. Nothing comes after a stop.
  std::string feed(int32_t id);
  // What was held back, when no token follows.
  std::string finish();
  // Whether a stop string has come: no token is needed any more.
  bool is_stopped() const { return is_stopped_; }
  // The stop string that has come; "" before.
  const std::string& stop() const { return stop_; }

 private:
  std::string bytes_of(int32_t id);
  std::string release(bool is_last);

  const Tokenizer& tokenizer_;
  std::vector<std::string> stops_;
  std::vector<int32_t> window_;  // the last tokens, whose text tells how the next one is written
  std::string held_;
  bool is_stopped_ = false;
  std::string stop_;
};

// `text` with U+FFFD in the place of bytes that are not UTF-8.
std::string valid_utf8(std::string_view text);

}  // namespace tutti::generate::serve
