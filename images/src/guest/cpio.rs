//! Archives in the "newc" format that the kernel unpacks (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::io::{self, Write};

/// Writes one archive.
pub struct Cpio<W: Write> {
    out: W,
    inode: u32,
    written: usize,
}

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

impl<W: Write> Cpio<W> {
    /// Begins an archive.
    pub fn new(out: W) -> Self {
        Self { out, inode: 0, written: 0 }
    }

    /// Adds a folder; its parents come first.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn folder(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, DIRECTORY | 0o755, &[])
    }

    /// Adds a file.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn file(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.entry(name, REGULAR | mode, content)
    }

    /// Ends the archive and gives the writer back.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.inode = 0;
        self.entry("TRAILER!!!", 0, &[])?;
        Ok(self.out)
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.inode += 1;
        let links = if mode & DIRECTORY != 0 && mode & REGULAR == 0 { 2 } else { 1 };
        let fields = [self.inode, mode, 0, 0, links, 0, content.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        let mut header = String::from("070701");
        for field in fields {
            header.push_str(&format!("{field:08x}"));
        }
        self.put(header.as_bytes())?;
        self.put(name.as_bytes())?;
        self.put(&[0])?;
        self.pad()?;
        self.put(content)?;
        self.pad()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len();
        self.out.write_all(bytes)
    }

    fn pad(&mut self) -> io::Result<()> {
        let missing = self.written.next_multiple_of(4) - self.written;
        self.put(&[0; 3][..missing])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_as_the_format_says() {
        let mut cpio = Cpio::new(Vec::new());
        cpio.folder("bin").unwrap();
        cpio.file("bin/x", 0o755, b"hello").unwrap();
        let bytes = cpio.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(text.matches("070701").count(), 3);
        // The second header: inode 2, mode 100755, size 5, name of 6 bytes with its end.
        let second = &text[110 + 6..][..];
        let at = second.find("070701").unwrap();
        let header = &second[at..at + 110];
        assert_eq!(&header[6..14], "00000002");
        assert_eq!(&header[14..22], "000081ed");
        assert_eq!(&header[54..62], "00000005");
        assert_eq!(&header[94..102], "00000006");
        assert!(text.contains("bin/x\0") && text.contains("hello") && text.contains("TRAILER!!!"));
    }
}
