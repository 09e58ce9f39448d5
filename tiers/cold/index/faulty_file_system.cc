#include "tiers/cold/index/faulty_file_system.h"

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <string>
#include <utility>

namespace firn {

void FileFaults::FailAfter(uint64_t calls, FileFault fault, bool reads) {
  fault_ = fault;
  reads_ = reads;
  left_ = calls;
}

void FileFaults::Mend() { left_ = ~uint64_t{0}; }

bool FileFaults::Fails(Call call) {
  const FileFault fault = fault_;
  if (call == Call::kRead && !(reads_ && fault == FileFault::kIoError)) return false;
  if (call == Call::kMake && fault == FileFault::kNoSpace) return false;
  uint64_t left = left_;
  while (left != ~uint64_t{0} && left > 0) {
    if (left_.compare_exchange_weak(left, left - 1)) return false;
  }
  if (left != 0) return false;
  ++refused_;
  return true;
}

namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;
using Call = FileFaults::Call;

IOStatus ErrorOf(FileFault fault) {
  switch (fault) {
    case FileFault::kNoSpace:
      return IOStatus::NoSpace("no space left on device");
    case FileFault::kIoError:
      return IOStatus::IOError("input/output error");
    case FileFault::kReadOnly:
      break;
  }
  return IOStatus::IOError("read-only file system");
}

class FaultyWritableFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  FaultyWritableFile(std::unique_ptr<rocksdb::FSWritableFile> file, FileFaults* faults)
      : FSWritableFileOwnerWrapper(std::move(file)), faults_(faults) {}
  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* debug) override {
    if (faults_->Fails(Call::kWrite)) return ErrorOf(faults_->fault());
    return FSWritableFileOwnerWrapper::Append(data, options, debug);
  }
  IOStatus Append(const Slice& data, const IOOptions& options, const rocksdb::DataVerificationInfo& check,
                  IODebugContext* debug) override {
    if (faults_->Fails(Call::kWrite)) return ErrorOf(faults_->fault());
    return FSWritableFileOwnerWrapper::Append(data, options, check, debug);
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
    if (faults_->Fails(Call::kWrite)) return ErrorOf(faults_->fault());
    return FSWritableFileOwnerWrapper::Sync(options, debug);
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    if (faults_->Fails(Call::kWrite)) return ErrorOf(faults_->fault());
    return FSWritableFileOwnerWrapper::Fsync(options, debug);
  }

 private:
  FileFaults* const faults_;
};

class FaultySequentialFile final : public rocksdb::FSSequentialFileOwnerWrapper {
 public:
  FaultySequentialFile(std::unique_ptr<rocksdb::FSSequentialFile> file, FileFaults* faults)
      : FSSequentialFileOwnerWrapper(std::move(file)), faults_(faults) {}
  IOStatus Read(size_t bytes, const IOOptions& options, Slice* result, char* scratch, IODebugContext* debug) override {
    if (faults_->Fails(Call::kRead)) return ErrorOf(faults_->fault());
    return FSSequentialFileOwnerWrapper::Read(bytes, options, result, scratch, debug);
  }

 private:
  FileFaults* const faults_;
};

class FaultyRandomAccessFile final : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  FaultyRandomAccessFile(std::unique_ptr<rocksdb::FSRandomAccessFile> file, FileFaults* faults)
      : FSRandomAccessFileOwnerWrapper(std::move(file)), faults_(faults) {}
  IOStatus Read(uint64_t offset, size_t bytes, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* debug) const override {
    if (faults_->Fails(Call::kRead)) return ErrorOf(faults_->fault());
    return FSRandomAccessFileOwnerWrapper::Read(offset, bytes, options, result, scratch, debug);
  }
  // One by one, by way of Read.
  IOStatus MultiRead(rocksdb::FSReadRequest* requests, size_t count, const IOOptions& options,
                     IODebugContext* debug) override {
    return FSRandomAccessFile::MultiRead(requests, count, options, debug);
  }

 private:
  FileFaults* const faults_;
};

class FaultyFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  explicit FaultyFileSystem(FileFaults* faults) : FileSystemWrapper(rocksdb::FileSystem::Default()), faults_(faults) {}
  const char* Name() const override { return "FaultyFileSystem"; }

  IOStatus NewWritableFile(const std::string& name, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file, IODebugContext* debug) override {
    if (faults_->Fails(Call::kMake)) return ErrorOf(faults_->fault());
    IOStatus status = FileSystemWrapper::NewWritableFile(name, options, file, debug);
    if (status.ok()) *file = std::make_unique<FaultyWritableFile>(std::move(*file), faults_);
    return status;
  }
  IOStatus NewSequentialFile(const std::string& name, const FileOptions& options,
                             std::unique_ptr<rocksdb::FSSequentialFile>* file, IODebugContext* debug) override {
    IOStatus status = FileSystemWrapper::NewSequentialFile(name, options, file, debug);
    if (status.ok()) *file = std::make_unique<FaultySequentialFile>(std::move(*file), faults_);
    return status;
  }
  IOStatus NewRandomAccessFile(const std::string& name, const FileOptions& options,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* file, IODebugContext* debug) override {
    IOStatus status = FileSystemWrapper::NewRandomAccessFile(name, options, file, debug);
    if (status.ok()) *file = std::make_unique<FaultyRandomAccessFile>(std::move(*file), faults_);
    return status;
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      IODebugContext* debug) override {
    if (faults_->Fails(Call::kMake)) return ErrorOf(faults_->fault());
    return FileSystemWrapper::RenameFile(from, to, options, debug);
  }
  IOStatus DeleteFile(const std::string& name, const IOOptions& options, IODebugContext* debug) override {
    if (faults_->Fails(Call::kMake)) return ErrorOf(faults_->fault());
    return FileSystemWrapper::DeleteFile(name, options, debug);
  }
  IOStatus GetFreeSpace(const std::string& path, const IOOptions& options, uint64_t* bytes,
                        IODebugContext* debug) override {
    IOStatus status = FileSystemWrapper::GetFreeSpace(path, options, bytes, debug);
    if (faults_->full()) *bytes = 0;
    return status;
  }
  // In files of this file system, not of the one below it.
  IOStatus NewLogger(const std::string& name, const IOOptions& options, std::shared_ptr<rocksdb::Logger>* logger,
                     IODebugContext* debug) override {
    return FileSystem::NewLogger(name, options, logger, debug);
  }

 private:
  FileFaults* const faults_;
};

}  // namespace

std::unique_ptr<rocksdb::Env> NewFaultyEnv(FileFaults* faults) {
  return rocksdb::NewCompositeEnv(std::make_shared<FaultyFileSystem>(faults));
}

}  // namespace firn
