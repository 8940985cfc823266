// The contents of a text file from a moving position on. Compressed files are expanded as they are read, so that what
// is in memory does not depend on their size.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tutti/io/gzip.h"
#include "tutti/io/mapped_file.h"

namespace tutti::io {

// Belongs to one thread.
class TextWindow {
 public:
  // Gzip is detected from the contents, and expected where `is_named_gzip`. It may expand to any size, but to no more
  // than kGunzipMostRatio times what was read. Errors of MappedFile and GzipReader.
  TextWindow(const std::string& file, bool is_named_gzip);

  // The text from the position on, as far as it is read; valid until the next call of another function.
  std::string_view text() const {
    return reader_ ? std::string_view(expanded_).substr(begin_) : mapped_.text().substr(begin_);
  }
  // The size of the file itself, compressed or not.
  size_t file_nbytes() const { return mapped_.nbytes(); }
  // Makes text() longer. Returns false when it reaches to the end of the file.
  bool grow();
  // Makes text() at least `nbytes` long, or as long as the file allows.
  void grow_to(size_t nbytes) {
    while (text().size() < nbytes && grow()) {
    }
  }
  // Moves the position. Pages of the file before it do not stay in memory.
  void drop(size_t nbytes) {
    begin_ += nbytes;
    if (!reader_ && begin_ - forgotten_ >= kForgetNbytes) forget();
  }

 private:
  static constexpr size_t kForgetNbytes = size_t{16} << 20;
  void forget();

  const MappedFile mapped_;
  std::optional<GzipReader> reader_;
  std::string expanded_;
  size_t begin_ = 0, forgotten_ = 0;
};

}  // namespace tutti::io
