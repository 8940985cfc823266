// The call that `tutti package run` makes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti {
class Tensor;
namespace deploy {
struct Manifest;
class Package;
}  // namespace deploy
}  // namespace tutti

namespace tutti::cli {

// Arguments of a fixed pattern; `given`: NAME=NUMBER, a declared size. UsageError for others.
std::vector<Tensor> pattern_arguments(const deploy::Manifest& manifest, const std::vector<std::string>& given);
// The number of this process where a launcher has started it.
std::optional<int> number_of_rank();
// The file of a rank, whose number stands for {rank}; without a launcher that of rank 0.
std::string file_of_rank(std::string file);
// Gives a package that communicates the group of the ranks that a launcher has started, for as long as the result
// lives; null when it does not communicate. UsageError when it communicates otherwise.
std::shared_ptr<void> join_ranks(deploy::Package& package, const std::string& file);

}  // namespace tutti::cli
