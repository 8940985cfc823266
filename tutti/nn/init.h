// Init: how a parameter is filled before training.
#pragma once

#include <cstdint>

namespace tutti::nn {

struct Init {
  enum class Kind : uint8_t { zeros, ones, normal, uniform } kind = Kind::zeros;
  double scale = 0.0;  // normal: the standard deviation; uniform: values lie in [-scale, scale)
  static Init zeros() { return {}; }
  static Init ones() { return {Kind::ones, 0.0}; }
  static Init normal(double deviation) { return {Kind::normal, deviation}; }
  static Init uniform(double bound) { return {Kind::uniform, bound}; }
};

}  // namespace tutti::nn
