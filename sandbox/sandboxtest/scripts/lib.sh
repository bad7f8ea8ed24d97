from_library() { echo library; }
