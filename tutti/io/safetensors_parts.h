// A safetensors file that several processes write together, each its boxes of the tensors. The bytes are those that
// write_safetensors() writes, whoever wrote which part.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/io/safetensors_header.h"
#include "tutti/runtime/unique_fd.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

class SafetensorsParts {
 public:
  // Lays out the file; nothing is written. All processes give the same tensors, of which name, dtype and shape count.
  // UsageError for a repeated name.
  SafetensorsParts(std::string path, std::vector<io::SafetensorsEntry> tensors,
                   std::map<std::string, std::string> metadata = {});

  // Makes the file with its header and room for all elements. One process calls it, before any writes. EnvironmentError
  // when there is too little room, or the file exists.
  void create() const;
  // Writes the elements of a tensor from the indices `first` on; `box` has as many dims as the tensor. UsageError for a
  // tensor that the file does not have, another dtype, and a box that reaches beyond it; EnvironmentError when it
  // cannot be written.
  void write(std::string_view name, const Extents& first, const Tensor& box);
  // Returns when the file is on the disk, as far as this process knows it.
  void sync();

 private:
  const io::SafetensorsEntry& entry(std::string_view name) const;
  int descriptor();

  const std::string path_;
  io::SafetensorsHeader header_;
  std::string header_bytes_;
  UniqueFd file_;
};

}  // namespace tutti
