// A CUDA runtime without a GPU: device memory is host memory, streams are threads.
#include <atomic>
#include <cstdlib>
#include <memory>

#include "tests/comm/fakes/fake_stream.h"

namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kNotReady = 600;
constexpr int kDevices = 8;
thread_local int current_device = 0;

struct Point {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
};

CudaStream& default_stream() {
  static auto* stream = new CudaStream;
  return *stream;
}
CudaStream& stream_or_default(CudaStream* stream) { return stream != nullptr ? *stream : default_stream(); }

}  // namespace

struct CudaEvent {
  std::mutex mutex;
  std::shared_ptr<Point> point;  // of the last record
};

extern "C" {

int cudaSetDevice(int device) {
  if (device < 0 || device >= kDevices) return kInvalidValue;
  current_device = device;
  return kSuccess;
}
int cudaGetDevice(int* device) {
  *device = current_device;
  return kSuccess;
}
// Compute capability TUTTI_FAKE_ARCHITECTURE (major * 10 + minor), else 9.0.
int cudaDeviceGetAttribute(int* value, int attribute, int) {
  const char* text = std::getenv("TUTTI_FAKE_ARCHITECTURE");
  const int architecture = text != nullptr ? std::atoi(text) : 90;
  *value = attribute == 75 ? architecture / 10 : architecture % 10;
  return kSuccess;
}
int cudaStreamCreateWithFlags(CudaStream** stream, unsigned) {
  *stream = new CudaStream;
  return kSuccess;
}
int cudaStreamDestroy(CudaStream* stream) {
  delete stream;
  return kSuccess;
}
int cudaEventCreateWithFlags(CudaEvent** event, unsigned) {
  *event = new CudaEvent;
  return kSuccess;
}
int cudaEventDestroy(CudaEvent* event) {
  delete event;
  return kSuccess;
}
int cudaEventRecord(CudaEvent* event, CudaStream* stream) {
  auto point = std::make_shared<Point>();
  {
    std::lock_guard lock(event->mutex);
    event->point = point;
  }
  stream_or_default(stream).submit([point] {
    {
      std::lock_guard lock(point->mutex);
      point->done = true;
    }
    point->changed.notify_all();
  });
  return kSuccess;
}
int cudaEventQuery(CudaEvent* event) {
  std::lock_guard lock(event->mutex);
  if (!event->point) return kSuccess;
  std::lock_guard point_lock(event->point->mutex);
  return event->point->done ? kSuccess : kNotReady;
}
int cudaStreamWaitEvent(CudaStream* stream, CudaEvent* event, unsigned) {
  std::lock_guard lock(event->mutex);
  if (auto point = event->point) {
    stream_or_default(stream).submit([point] {
      std::unique_lock wait(point->mutex);
      point->changed.wait(wait, [&] { return point->done; });
    });
  }
  return kSuccess;
}
int cudaMalloc(void** data, size_t nbytes) {
  *data = std::calloc(1, nbytes);
  return *data != nullptr ? kSuccess : 2;
}
int cudaFree(void* data) {
  std::free(data);
  return kSuccess;
}
const char* cudaGetErrorString(int error) { return error == kSuccess ? "no error" : "fake error"; }

}  // extern "C"
