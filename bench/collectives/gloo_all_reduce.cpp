// The same all-reduce by Gloo's ring over tcp on the loopback interface: gloo_all_reduce RANKS.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "bench/collectives/measure.hpp"

namespace {

void run_rank(const std::string& meeting_place, int rank, int ranks) {
  gloo::transport::tcp::attr where;
  where.iface = "lo";
  auto device = gloo::transport::tcp::CreateDevice(where);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  gloo::rendezvous::FileStore store(meeting_place);
  context->connectFullMesh(store, device);
  std::vector<float> data(kintsugi::bench::kLargest / sizeof(float), 0.0F);
  std::uint32_t tag = 0;
  for (const std::size_t bytes : kintsugi::bench::kSizes) {
    kintsugi::bench::measure(bytes, rank == 0, [&] {
      gloo::AllreduceOptions options(context);
      options.setOutput(data.data(), bytes / sizeof(float));
      options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
      options.setReduceFunction(
          [](void* out, const void* a, const void* b, std::size_t n) { gloo::sum<float>(out, a, b, n); });
      options.setTag(++tag);
      gloo::allreduce(options);
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc == 2 ? std::atoi(argv[1]) : 0;
  std::string meeting_place = (std::filesystem::temp_directory_path() / "gloo-XXXXXX").string();
  if (ranks < 2 || mkdtemp(meeting_place.data()) == nullptr) {
    std::fprintf(stderr, "usage: gloo_all_reduce RANKS\n");
    return 2;
  }
  std::vector<pid_t> children;
  for (int i = 1; i < ranks; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      run_rank(meeting_place, i, ranks);
      std::exit(0);
    }
    children.push_back(child);
  }
  run_rank(meeting_place, 0, ranks);
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  std::filesystem::remove_all(meeting_place);
}
