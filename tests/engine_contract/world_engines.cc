// How each engine under test is made.
#include <stdexcept>

#include "engines/epoll_engine.h"
#include "engines/sim_engine.h"
#include "engines/uring_engine.h"
#include "tests/engine_contract/world.h"

namespace weir::contract {

std::unique_ptr<Engine> make_engine(Loop& loop, EngineKind kind, SimNetwork* network) {
  switch (kind) {
    case EngineKind::epoll: {
      auto engine = make_epoll_engine(loop.slabs());
      if (!engine) throw std::runtime_error("epoll: " + std::to_string(engine.error()));
      return std::move(*engine);
    }
    case EngineKind::uring: {
      static const UringProbe probe = probe_uring();
      UringOptions options;
      options.probe = &probe;
      auto engine = make_uring_engine(loop.slabs(), options);
      if (!engine) throw std::runtime_error("io_uring: " + engine.error().text);  // not skipped
      return std::move(*engine);
    }
    case EngineKind::sim:
      return std::make_unique<SimEngine>(*network, loop.slabs());
  }
  return nullptr;
}

}  // namespace weir::contract
