// Attention (FLASH_ATTN_EXT): not yet.
inline bool attends(const ggml::Tensor *) { return false; }
inline size_t attend_size(int, const ggml::Tensor *) { return 0; }
inline void attend(ggml::Compute *, ggml::Tensor *) {}
