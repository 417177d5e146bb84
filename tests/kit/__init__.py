"""What tests share: scripted parts, makers of files and models, servers."""
