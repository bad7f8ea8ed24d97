package picture

import (
	"bytes"
	"context"
	"encoding/binary"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"
)

// noise is a picture that does not compress.
func noise(width, height int) *image.NRGBA {
	made, random := image.NewNRGBA(image.Rect(0, 0, width, height)), rand.New(rand.NewPCG(1, 2))
	for i := range made.Pix {
		made.Pix[i] = byte(random.Uint32())
	}
	return made
}

func pngOf(made image.Image) []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, made); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// webpFile is a lossless WebP of one pixel; its frame is at 20.
var webpFile = []byte("RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00\x2f\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00")

// extended is a WebP whose canvas is one pixel and whose frame has other dimensions.
func extended(side uint32) []byte {
	file := append([]byte("RIFF\xff\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00"), make([]byte, 10)...)
	frame := bytes.Clone(webpFile[12:])
	binary.LittleEndian.PutUint32(frame[9:], (side-1)|(side-1)<<14)
	return append(file, frame...)
}

// No copy of the whole picture in 32 bits a pixel, 80 MB, is made to scale it.
func TestMemory(t *testing.T) {
	file := pngOf(image.NewGray(image.Rect(0, 0, 5000, 4000)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	shown := of(t.Context(), file, nil) // a busy machine takes longer than Of waits
	runtime.ReadMemStats(&after)
	if shown == nil || !shown.Scaled {
		t.Fatal("not shown")
	}
	check(t, file, shown)
	if made := (after.TotalAlloc - before.TotalAlloc) >> 20; made > 320 {
		t.Errorf("%d MB were allocated", made)
	}
}

func TestOf(t *testing.T) {
	var photo, moving bytes.Buffer
	plain := image.NewPaletted(image.Rect(0, 0, 30, 20), color.Palette{color.White, color.Black})
	if err := jpeg.Encode(&photo, noise(64, 48), nil); err != nil {
		t.Fatal(err)
	}
	if err := gif.EncodeAll(&moving, &gif.GIF{Image: []*image.Paletted{plain, plain}, Delay: []int{1, 1}}); err != nil {
		t.Fatal(err)
	}
	wide := image.NewPaletted(image.Rect(0, 0, 4000, 100), plain.Palette)
	small := pngOf(plain)
	for _, test := range []struct {
		name          string
		file          []byte
		mimeType      string // empty: it is not shown
		width, height int
		scaled        bool
	}{
		{"png", small, "image/png", 30, 20, false},
		{"jpeg", photo.Bytes(), "image/jpeg", 64, 48, false},
		{"gif", moving.Bytes(), "image/gif", 30, 20, false},
		{"webp", webpFile, "image/webp", 1, 1, false},
		{"too wide", pngOf(wide), "image/png", 4000, 100, true},
		{"too many bytes", pngOf(noise(700, 700)), "image/jpeg", 700, 700, true},
		{"empty", nil, "", 0, 0, false},
		{"text", []byte("no picture"), "", 0, 0, false},
		{"svg", []byte(`<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>`), "", 0, 0, false},
		{"cut", small[:len(small)-20], "", 0, 0, false},
		{"only its first bytes", small[:16], "", 0, 0, false},
		{"too many pixels", pngOf(image.NewPaletted(image.Rect(0, 0, 5000, 5000), plain.Palette)), "", 0, 0, false},
		{"too long for its scaler", pngOf(image.NewPaletted(image.Rect(0, 0, 1, maxSide+1), plain.Palette)), "", 0, 0, false},
		{"a frame larger than its canvas", extended(16_000), "", 0, 0, false},
		{"too large a file", append(bytes.Clone(small), make([]byte, maxFile)...), "", 0, 0, false},
	} {
		shown := of(t.Context(), test.file, nil)
		if shown == nil {
			if test.mimeType != "" {
				t.Errorf("%s: not shown", test.name)
			}
			continue
		}
		if shown.MIMEType != test.mimeType || shown.Width != test.width || shown.Height != test.height || shown.Scaled != test.scaled {
			t.Errorf("%s: %s of %d x %d, scaled %v", test.name, shown.MIMEType, shown.Width, shown.Height, shown.Scaled)
		}
		check(t, test.file, shown)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if Decode(ended, small, nil) != nil {
		t.Error("a picture for a call that has ended")
	}
}

// A progressive JPEG can ask for thousands of passes over a large picture in few bytes; the time for it ends.
func TestPatience(t *testing.T) {
	scan := "\xff\xda\x00\x08\x01\x01\x00\x01\x3f\x10" + strings.Repeat("\x00", 30)
	passes := "\xff\xd8\xff\xdb\x00\x43\x00" + strings.Repeat("\x01", 64) + // a table of quantization
		"\xff\xc2\x00\x0b\x08\x0f\xa0\x0f\xa0\x01\x01\x11\x00" + // 4000 x 4000 pixels, progressive
		"\xff\xc4\x00\x14\x10\x01" + strings.Repeat("\x00", 15) + "\xe0" + // one code: 16,384 blocks of nothing
		strings.Repeat(scan, 20_000) + "\xff\xd9"
	soon, stop := context.WithTimeout(t.Context(), time.Second/10)
	defer stop()
	if Decode(soon, []byte(passes), nil) != nil {
		t.Error("20,000 passes over 16 million pixels are over in a moment")
	}
	ctx, cancel := context.WithCancel(t.Context())
	file := []byte("\xff\xd8\xff" + strings.Repeat("x", 4*chunk))
	in := &patient{ctx, bytes.NewReader(file)}
	if n, err := in.Read(make([]byte, len(file))); n != chunk || err != nil {
		t.Errorf("Read = %d, %v; a decoder gets %d bytes at a time", n, err, chunk)
	}
	cancel()
	if _, err := in.Read(make([]byte, 1)); err != errPatience {
		t.Errorf("Read after the end = %v", err)
	}
}

// check holds a shown picture to the bounds, and lets its own decoder read it.
func check(t *testing.T, file []byte, shown *Picture) {
	t.Helper()
	if len(shown.Data) > MaxBytes || !shown.Scaled && !bytes.Equal(shown.Data, file) {
		t.Errorf("%d bytes are shown, of a file of %d, scaled %v", len(shown.Data), len(file), shown.Scaled)
	}
	f := formatOf(shown.Data)
	if f == nil || f.mimeType != shown.MIMEType {
		t.Fatalf("what is shown as %s is not that", shown.MIMEType)
	}
	config, err := f.config(bytes.NewReader(shown.Data))
	if err != nil || max(config.Width, config.Height) > MaxSide {
		t.Errorf("shown with %d x %d pixels, %v", config.Width, config.Height, err)
	}
}

// FuzzOf: whatever the bytes, what is shown is a picture within the bounds.
func FuzzOf(f *testing.F) {
	var photo bytes.Buffer
	if err := jpeg.Encode(&photo, noise(9, 9), nil); err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{pngOf(noise(3, 3)), photo.Bytes(), webpFile, extended(2), []byte("GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00!\xf9\x04\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		if shown := Decode(t.Context(), file, nil); shown != nil {
			check(t, file, shown)
		}
	})
}

// Nothing is decoded without room for its pixels, which is given back.
func TestBorrow(t *testing.T) {
	file, asked, back := pngOf(image.NewGray(image.Rect(0, 0, 100, 50))), 0, 0
	for _, has := range []bool{true, false} {
		shown := Decode(t.Context(), file, func(_ context.Context, n int) (func(), bool) {
			asked = n
			return func() { back++ }, has
		})
		if (shown != nil) != has || asked != 100*50*pixelCost+len(file) {
			t.Errorf("room %v: shown %v, asked for %d bytes", has, shown != nil, asked)
		}
	}
	if back != 1 {
		t.Errorf("given back %d times, want once", back)
	}
}
