#include "tutti/io/text_window.h"

#include <cstdint>

namespace tutti::io {

// The contents may have any size: they are never in memory as a whole.
TextWindow::TextWindow(const std::string& file, bool is_named_gzip) : mapped_(file) {
  if (is_named_gzip || is_gzip(mapped_.bytes())) reader_.emplace(mapped_.bytes(), file, INT64_MAX);
}

bool TextWindow::grow() {
  if (!reader_) return false;  // all of it is mapped
  // Moves what is there to the front when it is the smaller part, so that each byte is moved once on average.
  if (begin_ > expanded_.size() / 2) {
    expanded_.erase(0, begin_);
    begin_ = 0;
  }
  return reader_->read(expanded_);
}

void TextWindow::forget() {
  forget_pages(mapped_.bytes().subspan(forgotten_, begin_ - forgotten_));
  forgotten_ = begin_;
}

}  // namespace tutti::io
