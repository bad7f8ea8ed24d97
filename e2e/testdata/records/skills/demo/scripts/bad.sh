#!/bin/bash
echo out; echo err >&2; exit 3
