#include "tutti/graph/background.h"

#include <utility>

#include "tutti/runtime/rank_context.h"

namespace tutti::graph {

BackgroundBuilds::~BackgroundBuilds() {
  for (Job& job : jobs_) job.thread.join();
}

void BackgroundBuilds::start(Guards guards, std::function<void()> work) {
  std::lock_guard lock(mutex_);
  // What is done is known to the function; an error waits for the next such call.
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    if (job->done && !job->error) {
      job->thread.join();
      job = jobs_.erase(job);
    } else {
      ++job;
    }
  }
  Job& job = jobs_.emplace_back();
  job.guards = std::move(guards);
  job.thread = std::thread([this, &job, work = std::move(work), &context = RankContext::current()] {
    const RankContext::Scope scope(context);
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    std::lock_guard lock(mutex_);
    job.done = true;
    job.error = error;
  });
}

void BackgroundBuilds::for_each_kind(FunctionRef<void(const Guards&)> visit) {
  std::lock_guard lock(mutex_);
  for (const Job& job : jobs_) visit(job.guards);
}

bool BackgroundBuilds::has(const Leaves& arguments) {
  std::unique_lock lock(mutex_);
  for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
    if (!job->guards.hold(arguments)) continue;
    if (!job->done) return true;
    job->thread.join();
    const std::exception_ptr error = job->error;
    jobs_.erase(job);
    if (error) std::rethrow_exception(error);
    return false;
  }
  return false;
}

}  // namespace tutti::graph
