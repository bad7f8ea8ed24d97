# Starts as many processes and threads as it is let.
import os, threading, time
hold = threading.Event()
processes = threads = 0
try:
    for _ in range(150):
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        processes += 1
except OSError:
    pass
print("processes", processes, flush=True)
if processes >= 150:
    print("BREACH processes")
try:
    for _ in range(150):
        threading.Thread(target=hold.wait, daemon=True).start()
        threads += 1
except RuntimeError:
    pass
if threads >= 150:
    print("BREACH threads")
print("done", flush=True)
os._exit(0)
