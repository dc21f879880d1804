"""Python's own http.server as an origin, in a process of its own: http_server.py PORT FOLDER.

GET /NAME serves a file of the folder with Content-Length, GET /chunked/NAME the same chunked. PUT takes either framing and answers
with the sha256 of what came.
"""
import hashlib
import http.server
import os
import sys

PIECE = 256 << 10


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if not self.path.startswith("/chunked/"):
            return super().do_GET()
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with open(os.path.join(self.directory, os.path.basename(self.path)), "rb") as source:
            while piece := source.read(PIECE):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")
        return None

    def copyfile(self, source, outputfile):
        while piece := source.read(PIECE):
            outputfile.write(piece)

    def pieces(self):
        length = self.headers.get("Content-Length")
        if length is not None:
            yield from self.counted(int(length))
            return
        while size := int(self.rfile.readline(), 16):
            yield from self.counted(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass

    def counted(self, left):
        while left:
            piece = self.rfile.read1(min(left, PIECE))
            if not piece:
                raise ConnectionError("the body broke off")
            left -= len(piece)
            yield piece

    def do_PUT(self):
        digest = hashlib.sha256()
        for piece in self.pieces():
            digest.update(piece)
        body = digest.hexdigest().encode()
        self.send_response(201)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    def handler(*args):
        return Handler(*args, directory=sys.argv[2])
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), handler).serve_forever()


if __name__ == "__main__":
    main()
